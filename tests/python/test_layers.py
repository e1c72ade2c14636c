"""Folders include what CMakeLists.txt says that they depend on and nothing else, and what runs a package links nothing
of the compiler."""

import re

import pytest
from compiled import ROOT

RUNS_PACKAGES = {"answer", "api", "ask", "device", "embed", "grammar", "prefix", "program", "runtime", "serve", "state", "text"}
COMPILER = {
    *("ir", "capture", "reference", "validate", "analyze", "generate", "families", "plan", "advise", "admit", "lab", "select", "compile"),
    *("emit", "quantize", "search", "tuning", "study", "tune", "report"),
}

# What kernel families have in common.
SHARED = {"attending", "attention_params", "body", "cost", "extent", "family", "list", "lowering", "product_params", "products", "rows"}


def libraries() -> dict:
    """Folder and direct dependencies of each library."""
    found = {}
    for name, folder, rest in re.findall(r"^ac_library\((\w+) (\S+)(.*)\)$", (ROOT / "CMakeLists.txt").read_text(), re.M):
        found[name] = ROOT / folder, [word for word in rest.split() if re.fullmatch(r"\w+", word)]
    return found


LIBRARIES = libraries()


def reached(name: str) -> set:
    direct = [word for word in LIBRARIES.get(name, (None, []))[1] if word in LIBRARIES]
    return set(direct).union(*map(reached, direct))


def test_the_libraries_are_found():
    assert RUNS_PACKAGES | COMPILER | {"base", "build", "checkpoint", "gguf", "net"} == set(LIBRARIES)
    for name, (folder, _) in LIBRARIES.items():
        assert list(folder.glob("*.cc")), name


@pytest.mark.parametrize("name", sorted(RUNS_PACKAGES))
def test_what_runs_packages_links_nothing_of_the_compiler(name):
    assert not reached(name) & COMPILER


@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_a_folder_includes_what_it_depends_on(name):
    folder, allowed = LIBRARIES[name][0], reached(name) | {name}
    for file in sorted([*folder.rglob("*.h"), *folder.rglob("*.cc")]):
        for other in re.findall(r'^#include "(\w+)/', file.read_text(), re.M):
            assert other in allowed or other not in LIBRARIES, f"{file.relative_to(ROOT)} includes {other}/"


def test_who_names_codes_of_weights():
    """All else asks the table: codes are added in these files, as docs/adding.md says."""
    known = {
        "kernels/all.cu",
        "kernels/weight_format.h",
        "kernels/weight_reader.cuh",
        "src/base/weight_format.cc",
        "src/capture/quantization.cc",
        "src/gguf/gguf_blocks.cc",
    }
    files = [file for folder in ("src", "kernels", "reference") for file in (ROOT / folder).rglob("*.*")]
    assert {str(file.relative_to(ROOT)) for file in files if "Codes::u4" in file.read_text()} == known


def test_who_names_a_kernel_family():
    """A family is added in its module and the list, as docs/adding.md says. Who else names one does so for what it is."""
    families = ROOT / "src" / "families"
    modules = {re.search(r"struct (\w+Task)", file.read_text())[1]: file.stem for file in families.glob("*.h") if file.stem not in SHARED}
    others = {
        "LibraryTask": {"src/emit/stats.cc", "src/select/select.cc", "src/tune/step_workshop.cc"},  # the one library
        "SamplingTask": {"src/admit/trials.cc", "src/admit/trials_as_used.cc", "src/families/list.cc", "src/plan/cover.cc", "src/plan/space.cc"},
        "TmaGemmTask": {"src/families/qkv_attention.cc", "src/families/qkv_attention.h"},  # which is made of it
        "PrefillAttentionTask": {"src/families/qkv_attention.cc", "src/families/qkv_attention.h"},
    }
    assert len(modules) == 16
    for task, name in modules.items():
        own = {f"src/families/{name}.h", f"src/families/{name}.cc", "src/families/list.h"}
        files = [file for file in (ROOT / "src").rglob("*.*") if re.search(rf"\b{task}\b", file.read_text())]
        assert {str(file.relative_to(ROOT)) for file in files} == own | others.get(task, set()), task


def types_of(file) -> set:
    """(namespace, name) of the types that a header defines outside of other types."""
    found, namespace = set(), None
    for line in file.read_text().splitlines():
        if opened := re.match(r"namespace ([\w:]+) \{", line):
            namespace = opened[1]
        elif line.startswith("}  // namespace"):
            namespace = None
        elif defined := re.match(r"(?:struct|class|enum class) (\w+)(?: final)?(?: :.*)? \{|using (\w+) =", line):
            found.add((namespace, defined[1] or defined[2]))
    return found


def test_no_two_types_of_one_name_in_reach():
    """A room's type has a name that no other type has in its own namespace, or in `ac` of the rooms that it can include."""
    types = {
        name: {(file, *entry) for file in folder.rglob("*.h") for entry in types_of(file)}
        for name, (folder, _) in LIBRARIES.items()
    }
    everywhere = set().union(*types.values())
    twice = set()
    for room, own in types.items():
        within = set().union(*(types[name] for name in reached(room) | {room}))
        for file, namespace, name in own:
            for other, around, its_name in everywhere:
                if name == its_name and file != other and (
                    namespace == around or ((other, around, name) in within and f"{namespace}::".startswith(f"{around}::"))
                ):
                    twice.add(f"{name}: {file.relative_to(ROOT)} and {other.relative_to(ROOT)}")
    assert not twice, "\n".join(sorted(twice))
