"""Ways to damage a file or a folder, each by a seeded random.Random, so that a failed test can be run
again. Every one changes something, and returns what it did, for people."""

import hashlib
import json
import random
from pathlib import Path


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _write(path: Path, content: bytes) -> None:
    """In place, whatever the mode; the file stays the same one, as a bad disk would leave it."""
    path.chmod(path.stat().st_mode | 0o200)
    path.write_bytes(content)


def flip(path: Path, rng: random.Random) -> str:
    """One bit; the file must not be empty."""
    content = bytearray(path.read_bytes())
    at, bit = rng.randrange(len(content)), rng.randrange(8)
    content[at] ^= 1 << bit
    _write(path, bytes(content))
    return f"flip bit {bit} of byte {at} of {path.name}"


def truncate(path: Path, rng: random.Random) -> str:
    """To fewer bytes, sometimes to none; the file must not be empty."""
    content = path.read_bytes()
    size = rng.choice([0, rng.randrange(len(content)), len(content) - 1])
    _write(path, content[:size])
    return f"truncate {path.name} from {len(content)} to {size} bytes"


def extend(path: Path, rng: random.Random) -> str:
    size = rng.randint(1, 64)
    _write(path, path.read_bytes() + rng.randbytes(size))
    return f"append {size} bytes to {path.name}"


def garbage(path: Path, rng: random.Random) -> str:
    """Random bytes over a part of the file; it must not be empty."""
    content = bytearray(path.read_bytes())
    size = rng.randint(1, min(len(content), 64))
    at = rng.randrange(len(content) - size + 1)
    before = content[at : at + size]
    while content[at : at + size] == before:
        content[at : at + size] = rng.randbytes(size)
    _write(path, bytes(content))
    return f"{size} random bytes at byte {at} of {path.name}"


def double_line(path: Path, rng: random.Random) -> str:
    """A line, or in a file of one line a part of it, stands there twice."""
    lines = path.read_bytes().splitlines(keepends=True)
    if len(lines) < 2:
        line = lines[0]
        at = rng.randrange(len(line))
        lines = [line[:at], line[at : at + rng.randint(1, 64)], line[at:]]
        where = f"the bytes from {at} on"
    else:
        at = rng.randrange(len(lines))
        lines.insert(at, lines[at])
        where = f"line {at + 1}"
    _write(path, b"".join(lines))
    return f"double {where} of {path.name}"


def delete(path: Path, rng: random.Random) -> str:
    path.unlink()
    return f"delete {path.name}"


def swap(path: Path, other: Path) -> str:
    """Each gets the other's content; these must differ."""
    mine, theirs = path.read_bytes(), other.read_bytes()
    assert mine != theirs
    _write(path, theirs)
    _write(other, mine)
    return f"swap {path.name} and {other.name}"


OF_ONE_FILE = (flip, flip, truncate, extend, garbage, double_line, delete)


def damage(folder: Path, rng: random.Random, among: list[Path] | None = None) -> str:
    """Damages one of these files (default: all of the folder's), or swaps two of them."""
    files = files_in(folder) if among is None else among
    path = rng.choice(files)
    content = path.read_bytes()
    others = [other for other in files if other.read_bytes() != content]
    if others and rng.randrange(8) == 0:
        return swap(path, rng.choice(others))
    if not content:
        return rng.choice([extend, delete])(path, rng)
    return rng.choice(OF_ONE_FILE)(path, rng)


def sign(package: Path) -> None:
    """Makes digests.json that of a package's files as they are: for edits that shall not be seen by it."""
    package = Path(package)
    files = {
        path.relative_to(package).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files_in(package)
        if path != package / "digests.json"
    }
    text = json.dumps(files, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (package / "digests.json").write_text(json.dumps({"files": files, "sha256_of_files": digest}))
