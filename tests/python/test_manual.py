"""The manual that the program makes of its own options: help, man pages, and completions, which real shells
try out."""

import functools
import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest
from compiled import PROGRAM, ROOT, program

OPTION = re.compile(r"^  (-[^ ].*?)(?:  |$)", re.MULTILINE)


@functools.cache
def whole_help(*words) -> str:
    return program("help", *words).stdout


def commands(*above):
    """All commands, as lists of words: those under these words, and those under each of them."""
    text = whole_help(*above)
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
    words = re.findall(r"^  ([a-z-]+) ", listed[1], re.MULTILINE) if listed else []
    return [list(above)] + [each for word in words for each in commands(*above, word)]


@pytest.fixture(scope="module")
def all_commands():
    return commands()


def options(text) -> set:
    """The long names of the options that a help text lists."""
    return {name for line in OPTION.findall(text) for name in re.findall(r"--[a-z-]+", line.split("{")[0])}


def needs(tool):
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool}: scripts/setup.sh installs it")


def test_the_version_is_the_one_of_the_build_and_of_the_newest_changes():
    version = re.search(r"project\(agentcompile VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert program("--version").stdout == f"agentcompile {version}\n"
    assert re.search(r"^## ([0-9.]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version


def test_help_leaves_out_what_few_people_need(all_commands):
    assert ["compile"] in all_commands and ["study", "record"] in all_commands
    assert ["worker"] not in all_commands
    for words in all_commands:
        short, whole = program(*words, "--help").stdout, program(*words, "--help-all").stdout
        assert options(short) <= options(whole)
        assert ("--help-all shows the rest" in short) == (len(short) < len(whole))
        assert whole_help(*words) == whole
        for text in (short, whole):
            assert max(map(len, text.splitlines())) <= 130  # an example may be longer than a paragraph
    short, whole = program("compile", "--help").stdout, program("compile", "--help-all").stdout
    assert "--families" in options(whole) - options(short) and "--advisor" in options(whole) - options(short)
    assert "--device" in options(short)


def test_help_says_what_an_option_takes():
    text = " ".join(program("compile", "--help-all").stdout.split())
    assert "--device {host,cuda} The device to compile for and to time on (default: host)" in text
    assert "--chunk N Tokens of the prompt that one step processes (default: 2048 on a GPU, else 128; 1 to 65536)" in text
    assert "-o, --output FOLDER" in text
    assert "Usage: agentcompile compile [OPTIONS] -o FOLDER SOURCE" in text
    assert "SOURCE A HuggingFace directory" in text
    assert "SOURCE A package, or a model: a HuggingFace" in " ".join(program("run", "--help").stdout.split())
    assert "(minutes; not with --no-check)" in text
    assert "with --context)" in " ".join(program("bench", "--help-all").stdout.split())


def test_help_of_a_command_that_does_not_exist():
    for words in (("foo",), ("study", "foo"), ("worker",)):
        result = program("help", *words, expect=2)
        assert result.stderr == f'error: help: "{words[-1]}" is not a command\n'


def test_help_fits_a_terminal():
    lines = terminal_output(["compile", "--help-all"], columns=60)
    paragraphs = [line for line in lines if not line.startswith("  agentcompile")]
    assert max(map(len, paragraphs)) <= 60


def terminal_output(arguments, columns):
    import fcntl
    import struct
    import termios

    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        os.execv(PROGRAM, [str(PROGRAM), *arguments])
    text = b""
    while True:
        try:
            some = os.read(terminal, 4096)
        except OSError:
            break
        if not some:
            break
        text += some
    os.waitpid(pid, 0)
    return text.decode().replace("\r\n", "\n").splitlines()


def test_man_pages_say_what_help_says(all_commands):
    needs("groff")
    for words in all_commands:
        source = program("help", *words, "--man").stdout
        shown = subprocess.run(
            ["groff", "-man", "-Tascii", "-ww", "-P-cbou", "-rLL=200n"], input=source, capture_output=True, text=True
        )
        assert shown.returncode == 0 and shown.stderr == ""
        name = "-".join(["agentcompile", *words])
        assert re.search(rf"^NAME\n +{name} - ", shown.stdout, re.MULTILINE)
        whole = whole_help(*words)
        assert options(whole) <= set(re.findall(r"--[a-z-]+", shown.stdout))
        for line in re.findall(r"^  (agentcompile .*)$", whole, re.MULTILINE):
            assert line in shown.stdout
    page = program("help", "--man").stdout
    assert ".SH ENVIRONMENT\n" in page and "HF_TOKEN" in page and ".SH EXIT CODES\n" in page


def test_the_manual_is_installed(tmp_path):
    subprocess.run([ROOT / "scripts/manual.sh", PROGRAM, tmp_path], check=True)
    pages = {path.name for path in (tmp_path / "man/man1").iterdir()}
    assert {"agentcompile.1", "agentcompile-compile.1", "agentcompile-study-record.1"} <= pages
    assert len(pages) == len(commands())
    assert (tmp_path / "bash-completion/completions/agentcompile").read_text().startswith("# Completions")
    assert (tmp_path / "zsh/site-functions/_agentcompile").read_text().startswith("#compdef agentcompile")
    assert (tmp_path / "fish/vendor_completions.d/agentcompile.fish").is_file()


# A line up to the cursor, and what is offered for its last word: all of it, or at least this.
LINES = [
    (["comp"], {"compile", "completions"}, True),
    (["study", ""], {"record", "advise", "propose", "predict", "replay"}, True),
    (["compile", "--device", ""], {"host", "cuda"}, True),
    (["compile", "--dtype", "b"], {"bfloat16"}, True),
    (["compile", "--dev"], {"--device"}, True),
    (["study", "record", "--ad"], {"--admit"}, True),
    (["compile", "--advi"], {"--advisor"}, False),
    (["tune", "--search", "t"], {"tree"}, True),
    (["run", "--ids-file", "wei"], {"weights of it"}, True),
    (["verify", "wei"], {"weights of it"}, True),
    (["compile", "--chunk", ""], set(), True),
    (["completions", ""], {"bash", "zsh", "fish"}, True),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completions")
    (folder / "weights of it").write_text("")
    for shell, name in (("bash", "c.bash"), ("zsh", "_agentcompile"), ("fish", "c.fish")):
        (folder / name).write_text(program("completions", shell).stdout)
    return folder


def offered_by_bash(folder, words):
    script = (
        'source c.bash\ncompopt() { :; }\nCOMP_WORDS=(agentcompile "$@")\nCOMP_CWORD=$#\n_agentcompile\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    shown = subprocess.run(["bash", "-c", script, "bash", *words], cwd=folder, capture_output=True, text=True)
    assert shown.returncode == 0 and shown.stderr == ""
    return {line for line in shown.stdout.splitlines() if line}


def offered_by_fish(folder, words):
    needs("fish")
    line = " ".join(["agentcompile", *words])
    shown = subprocess.run(
        ["fish", "--no-config", "-c", f"source c.fish; complete -C '{line}'"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(folder)},
    )
    assert shown.returncode == 0 and shown.stderr == ""
    return {line.split("\t")[0] for line in shown.stdout.splitlines()}


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_completions(shell, folder):
    for words, expected, is_all in LINES:
        offered = {"bash": offered_by_bash, "fish": offered_by_fish}[shell](folder, words)
        assert offered >= expected, (words, offered)
        if is_all and shell == "bash":
            assert offered == expected, words


def completed_by_zsh(folder, lines):
    """What the tab key makes of each of these lines."""
    needs("zsh")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(TERM="dumb", HOME=str(folder), PS1="")
        os.execvp("zsh", ["zsh", "-f", "-i"])

    def read_until(mark):
        text, end = "", time.monotonic() + 30
        while mark not in text:
            assert time.monotonic() < end, text
            if select.select([terminal], [], [], 1)[0]:
                text += os.read(terminal, 4096).decode(errors="replace")
        return text

    def send(text):
        os.write(terminal, text.encode())

    send(
        "PS1=; unsetopt zle_bracketed_paste; fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; "
        "show() { print -r -- '<<'$BUFFER'>>'; BUFFER= }; zle -N show; bindkey '^X' show; "
        "bindkey '^I' complete-word; echo rea''dy\n"
    )
    read_until("ready")
    results = []
    for line in lines:
        send(f"{line}\t\x18")
        results.append(re.findall(r"<<(.*?)>>", read_until(">>"))[-1])
    send("exit\n")
    os.close(terminal)
    os.waitpid(pid, 0)
    return results


def test_completions_of_zsh(folder):
    lines = {
        "agentcompile compi": "agentcompile compile ",
        "agentcompile compile --dev": "agentcompile compile --device ",
        "agentcompile compile --device h": "agentcompile compile --device host ",
        "agentcompile study rec": "agentcompile study record ",
        "agentcompile study record --adm": "agentcompile study record --admit ",
        "agentcompile verify wei": "agentcompile verify weights\\ of\\ it ",
        "agentcompile tune --search t": "agentcompile tune --search tree ",
    }
    assert completed_by_zsh(folder, lines) == list(lines.values())


def test_completions_know_every_option(all_commands, folder):
    bash, zsh, fish = ((folder / name).read_text() for name in ("c.bash", "_agentcompile", "c.fish"))
    for words in all_commands:
        whole = options(whole_help(*words))
        name = " ".join(["agentcompile", *words])
        offered = re.search(rf"^ *'{name}'\) options='([^']*)' words=", bash, re.MULTILINE)[1].split()
        assert whole <= set(offered)
        of_fish = re.findall(rf"^complete -c agentcompile -n '__agentcompile_at {name}' (.*)$", fish, re.MULTILINE)
        assert whole == {"--" + long for line in of_fish for long in re.findall(r"-l (\S+)", line)}
        function = zsh.split(f"\n_{name.replace(' ', '_').replace('-', '_')}() {{\n")[1].split("\n}\n")[0]
        for option in whole:
            assert re.search(rf"(^|[ ,{{'\n]){option}[,}}'\[]", function), (name, option)
