// A device that counts the bytes which the host and it exchange, and leaves all work to another.
#pragma once

#include "device/device.h"

namespace ac::test {

class CountingDevice : public Device {
 public:
  explicit CountingDevice(Device& device) : device_(device) {}

  std::size_t uploaded = 0, downloaded = 0;

  std::string name() const override { return device_.name(); }
  const DeviceInfo& info() const override { return device_.info(); }
  std::size_t free_bytes() const override { return device_.free_bytes(); }
  std::unique_ptr<Memory> allocate(std::size_t bytes) override { return device_.allocate(bytes); }
  void upload(void* to, std::span<const std::byte> from) override {
    uploaded += from.size();
    device_.upload(to, from);
  }
  void download(std::span<std::byte> to, const void* from) override {
    downloaded += to.size();
    device_.download(to, from);
  }
  std::unique_ptr<Memory> allocate_staging(std::size_t bytes) override {
    return device_.allocate_staging(bytes);
  }
  void upload_later(void* to, const void* staging, std::size_t bytes) override {
    uploaded += bytes;
    device_.upload_later(to, staging, bytes);
  }
  void download_later(void* staging, const void* from, std::size_t bytes) override {
    downloaded += bytes;
    device_.download_later(staging, from, bytes);
  }
  std::unique_ptr<Mark> make_mark() override { return device_.make_mark(); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    device_.copy(to, from, bytes);
  }
  void copy_rows(const RowCopy& copy) override { device_.copy_rows(copy); }
  void fill(void* at, std::size_t bytes, unsigned char value) override {
    device_.fill(at, bytes, value);
  }
  std::unique_ptr<Kernel> load(std::string_view content, const std::filesystem::path& file,
                               const std::string& entry) override {
    return device_.load(content, file, entry);
  }
  std::unique_ptr<Kernel> load_product(const Product& product) override {
    return device_.load_product(product);
  }
  std::size_t product_bytes() const override { return device_.product_bytes(); }
  void encode_map(const kernels::MatrixView& matrix, kernels::TensorMap& map) const override {
    device_.encode_map(matrix, map);
  }
  void launch(const Kernel& kernel, const LaunchShape& shape,
              std::span<const std::byte> params) override {
    device_.launch(kernel, shape, params);
  }
  void synchronize() override { device_.synchronize(); }
  std::unique_ptr<Recording> record(const std::function<void()>& enqueue) override {
    return device_.record(enqueue);
  }

 private:
  double time_now(const std::function<void()>& enqueue) override { return device_.time(enqueue); }

  Device& device_;
};

}  // namespace ac::test
