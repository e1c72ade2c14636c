// Fuzzes without libFuzzer: gives a target every seed as it is, and then so many inputs that are
// made of seeds.
//   fuzz_NAME [--inputs=N] [--seed=N] [SEED FILE OR FOLDER]...
// Equal arguments make equal inputs. The target runs in a child process: if that dies or hangs, its
// input is printed in base64. What base64 -d makes of it is a seed that fails by itself, with
// --inputs=0.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" [[gnu::weak]] std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                                             std::size_t max_size,
                                                             unsigned int seed);
extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=4096"; }

namespace {

constexpr unsigned kSeconds = 300;  // that one input may take
constexpr long kBytes = 4l << 30;   // and that the target may
constexpr std::size_t kSmall = 4096;

// What the child is at, for the parent to read.
struct Shared {
  bool running;  // an input, rather than what is before and after
  std::size_t size;
  std::uint8_t data[std::size_t{16} << 20];
};

class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, std::uint64_t seed)
      : seeds_(std::move(seeds)), random_(seed) {
    std::set<std::string_view> words;
    for (const std::string_view text : seeds_) {
      const auto is_word = [&](std::size_t i) {
        return std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_';
      };
      for (std::size_t i = 0, end = 0; i < text.size(); i = end) {
        for (end = i + 1; end < text.size() && is_word(i) && is_word(end);) ++end;
        words.insert(text.substr(i, end - i));
      }
      longest_ = std::max(longest_, text.size());
    }
    words_.assign(words.begin(), words.end());
  }

  std::size_t longest() const { return longest_; }
  unsigned number() { return static_cast<unsigned>(random_()); }
  const std::string& seed() { return pick(seeds_); }

  // One to eight edits.
  void mutate(std::string& text, std::size_t longest) {
    for (std::size_t left = 1 + below(8); left > 0; --left) edit(text);
    if (text.size() > longest) text.resize(longest);
  }

 private:
  std::size_t below(std::size_t bound) { return random_() % bound; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

  void edit(std::string& text) {
    const std::size_t at = below(text.size() + 1), rest = text.size() - at;
    const std::size_t part = below(std::min(rest, std::size_t{64}) + 1);
    switch (below(9)) {
      case 0:
        if (rest > 0) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        if (rest > 0) text[at] = static_cast<char>(below(256));
        break;
      case 2:
        text.erase(at, part);
        break;
      case 3:
        text.insert(at, std::string(text, at, part));
        break;
      case 4:
        if (below(8) == 0) text.resize(at);
        break;
      case 5:
        if (!words_.empty()) text.insert(at, pick(words_));
        break;
      case 6:
        if (!words_.empty()) text.replace(at, part, pick(words_));
        break;
      case 7:
        odd_number(text, at);
        break;
      default: {
        const std::string& other = seed();
        const std::size_t from = below(other.size() + 1);
        text.replace(at, part, other, from, below(std::min(other.size() - from, kSmall) + 1));
      }
    }
  }

  // At the place's digits, or else in its bytes.
  void odd_number(std::string& text, std::size_t at) {
    static const std::vector<std::string> texts{"0",
                                                "1",
                                                "-1",
                                                "2147483648",
                                                "4294967295",
                                                "9223372036854775807",
                                                "18446744073709551615",
                                                "-9223372036854775808",
                                                "1e300",
                                                "0.5",
                                                "1e-320",
                                                "99999999999999999999"};
    static const std::vector<std::uint64_t> values{
        0,           1,           0x7f,        0x80,       0xffff,
        0x7fff'ffff, 0x8000'0000, 0xffff'ffff, 1ull << 40, (1ull << 63) - 1,
        1ull << 63,  ~0ull};
    const auto first = std::find_if(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(),
                                    [](unsigned char c) { return std::isdigit(c); });
    if (first != text.end() && below(4) > 0) {
      const auto end =
          std::find_if_not(first, text.end(), [](unsigned char c) { return std::isdigit(c); });
      text.replace(first, end, pick(texts));
    } else if (text.size() - at >= sizeof(std::uint64_t)) {
      const std::uint64_t value = pick(values);
      std::memcpy(text.data() + at, &value, std::size_t{1} << below(4));
    }
  }

  std::vector<std::string> seeds_;
  std::vector<std::string_view> words_;  // of the seeds
  std::size_t longest_ = kSmall;
  std::mt19937_64 random_;
};

Mutator* mutator = nullptr;  // of this process, for LLVMFuzzerMutate

void run_one(Shared& shared, std::string_view input) {
  // The copy has no spare bytes, so that AddressSanitizer finds a read behind the input.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  shared.size = std::min(input.size(), sizeof(shared.data));
  std::memcpy(shared.data, input.data(), shared.size);
  shared.running = true;
  alarm(kSeconds);
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  alarm(0);
  shared.running = false;
}

void run_all(Shared& shared, const std::vector<std::string>& seeds, long inputs) {
  run_one(shared, "");
  for (const std::string& seed : seeds) run_one(shared, seed);
  const std::size_t longest = mutator->longest();
  for (long i = 0; i < inputs; ++i) {
    std::string input = mutator->seed();
    if (LLVMFuzzerCustomMutator != nullptr) {
      std::size_t size = input.size();
      input.resize(longest);
      for (unsigned left = 1 + mutator->number() % 4; left > 0; --left)
        size = LLVMFuzzerCustomMutator(reinterpret_cast<std::uint8_t*>(input.data()), size, longest,
                                       mutator->number());
      input.resize(size);
    } else {
      mutator->mutate(input, longest);
    }
    run_one(shared, input);
  }
}

std::string base64(const std::uint8_t* data, std::size_t size) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < size; i += 3) {
    unsigned group = 0;
    for (std::size_t j = 0; j < 3; ++j) group = group << 8 | (i + j < size ? data[i + j] : 0u);
    for (std::size_t j = 0; j < 4; ++j)
      text += i + j <= size ? kDigits[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

long bytes_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/statm");
  long all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

long number_of(std::string_view text) {
  long number = -1;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ptr != text.data() + text.size() || number < 0) {
    std::fprintf(stderr, "not a number: %.*s\n", static_cast<int>(text.size()), text.data());
    std::exit(2);
  }
  return number;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                        std::size_t max_size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  mutator->mutate(text, max_size);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

int main(int count, char** arguments) {
  long inputs = 1000, seed = 1;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument.starts_with("--inputs=")) {
      inputs = number_of(argument.substr(9));
    } else if (argument.starts_with("--seed=")) {
      seed = number_of(argument.substr(7));
    } else if (std::filesystem::is_directory(argument)) {
      for (const auto& entry : std::filesystem::directory_iterator(argument))
        if (entry.is_regular_file()) files.push_back(entry.path());
    } else {
      files.emplace_back(argument);
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const std::filesystem::path& file : files) seeds.push_back(read_file(file));
  if (seeds.empty()) seeds.emplace_back();

  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return 2;
  }
  auto& shared = *static_cast<Shared*>(memory);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("fork");
    return 2;
  }
  if (child == 0) {
    Mutator of_seeds(seeds, static_cast<std::uint64_t>(seed));
    mutator = &of_seeds;
    run_all(shared, seeds, inputs);
    mutator = nullptr;
    return 0;  // and is searched for leaks
  }
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (bytes_of(child) > kBytes) {
      std::printf("took more than %ld MiB\n", kBytes >> 20);
      kill(child, SIGKILL);
    }
    usleep(20'000);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::printf("%zu seeds, %ld inputs: ok\n", seeds.size(), inputs);
    return 0;
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    std::printf("an input took more than %u s\n", kSeconds);
  else if (WIFSIGNALED(status))
    std::printf("ended by signal %d\n", WTERMSIG(status));
  if (shared.running)
    std::printf("input in base64:\n%s\n", base64(shared.data, shared.size).c_str());
  return 1;
}
