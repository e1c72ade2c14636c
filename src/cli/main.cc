#include <fmt/format.h>
int main() { fmt::print("agentcompile {}\n", AC_VERSION); }
