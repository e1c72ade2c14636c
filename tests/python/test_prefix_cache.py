"""`serve` keeps what it has read of prompts: answers have the same bits as without, in less time."""

import shutil
import signal
import time
from pathlib import Path

import pytest
import text_model
import tiny_models
import transformers
from compiled import program
from served import Server, compiled_once
from variants import only_long

DEMO = Path(__file__).parents[2] / "examples" / "demo_draft"
CHUNK, CONTEXT = 16, 256


def write_windowed(folder):
    """A Gemma with windows that are much shorter than its prompts."""
    text_model.write_tokenizer(folder)
    vocabulary = len(transformers.AutoTokenizer.from_pretrained(folder))
    tiny_models.CASES["windowed_text"] = tiny_models.Case(
        "Gemma3",
        dict(vocab_size=vocabulary, max_position_embeddings=CONTEXT, head_dim=16, num_hidden_layers=3)
        | dict(sliding_window=24, layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    )
    tiny_models.write_case("windowed_text", folder)


WRITE = {"demo": lambda folder: shutil.copytree(DEMO, folder), "windowed": write_windowed}


@pytest.fixture(
    scope="module",
    params=[("demo", "auto"), pytest.param(("windowed", "auto"), marks=only_long), ("windowed", "fp8")],
    ids="-".join,
)
def package(request, tmp_path_factory):
    name, kv = request.param
    options = ("--max-context", CONTEXT, "--chunk", CHUNK, "--kv", kv)
    return compiled_once(tmp_path_factory, f"prefix-{name}-{kv}", WRITE[name], *options)[1]


def ids(of, count) -> list:
    """A long prompt, other ones for other numbers but for the beginning that all share."""
    return [7 + i * i % 300 for i in range(40)] + [11 + (i * of * 37 + of) % 350 for i in range(count - 40)]


def asked(server, prompt, seed=None) -> dict:
    """Drawn with the seed, or with logprobs, in all their digits."""
    drawn = dict(temperature=0.9, seed=seed) if seed is not None else dict(temperature=0, logprobs=5)
    got = server.post("/v1/completions", prompt=prompt, max_tokens=6, **drawn)
    return got["choices"], got["usage"]["prompt_tokens_details"]["cached_tokens"]


def conversations(server) -> tuple[list, list]:
    """Two that alternate; each turn goes on with what the one before it gave."""
    choices, cached = [], []
    talks = [ids(1, 90), ids(2, 100)]
    for turn in range(3):
        for talk in talks:
            got, known = asked(server, talk, seed=turn if turn % 2 else None)
            choices.append(got)
            cached.append((known, len(talk)))
            talk += [9 + len(got[0]["text"].encode()) % 100 + i for i in range(19)]
    return choices, cached


def placed(server, name, place) -> float:
    return server.metric(f'prefix_cache_{name}{{place="{place}"}}')


def test_conversations_that_alternate_are_read_once(package):
    with Server(package, "--cache-memory", 0) as plain, Server(package) as server:
        truth, cached = conversations(plain)
        # Without a cache, what both begin with is all that there is.
        assert all(known <= 48 for known, _ in cached)
        got, cached = conversations(server)
        assert got == truth
        first = [0, 32]
        assert [known for known, _ in cached[:2]] == first
        for known, tokens in cached[2:]:
            assert known == (tokens - 19) // CHUNK * CHUNK > 60  # of the turn before
        assert server.metric("prefix_hits_total") == 5 and server.metric("prefix_misses_total") == 1
        assert placed(server, "tokens_total", "memory") > 250
        assert 0 < placed(server, "bytes", "memory") <= placed(server, "room_bytes", "memory")
        assert server.metric("prompt_tokens_cached_total") == sum(known for known, _ in cached)
        # Several answers, and a prompt that ends where a step does.
        for prompt in (ids(1, 90)[:64], ids(1, 90)[:65], ids(1, 90)[:1]):
            assert asked(server, prompt)[0] == asked(plain, prompt)[0]
            assert asked(server, prompt)[0] == asked(plain, prompt)[0]


def test_little_room_and_shorter_steps(package):
    with Server(package, "--cache-memory", 0, "--cache-step", 8) as plain:
        truth, _ = conversations(plain)
    coded = "f8e4m3" in (package / "program.json").read_text()
    room = 30 if coded else 100  # KiB: a code and its share of a scale are a third of a float32
    little = ("--cache-memory", f"{room}K", "--cache-step", 8, "--cache-device-memory", f"{room // 2}K")
    with Server(package, *little) as server:
        got, cached = conversations(server)
        assert got == truth
        assert placed(server, "evictions_total", "memory") > 0
        assert placed(server, "bytes", "memory") <= room << 10
        assert placed(server, "bytes", "device") <= room // 2 << 10


def test_the_next_server_knows_what_the_last_one_read(package, tmp_path):
    folder = tmp_path / "states"
    options = ("--cache-dir", folder, "--cache-disk", "64M")
    with Server(package, *options) as server:
        truth, _ = conversations(server)
    with Server(package, *options) as server:
        got, known = asked(server, ids(1, 90))
        assert got == truth[0] and known == 80
        assert placed(server, "tokens_total", "disk") == 80
        assert conversations(server)[0] == truth
    # Files that were harmed are said once, removed, and written again.
    files = sorted(folder.glob("*.states"))
    assert len(files) > 12
    for i, file in enumerate(files):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 4
        file.write_bytes(content if i % 2 else content[: len(content) // 2])
    with Server(package, *options) as server:
        got, known = asked(server, ids(1, 90))
        assert got == truth[0] and known == 0
        assert asked(server, ids(1, 90))[1] == 80
        damaged = server.metric("prefix_cache_damaged_files_total")
    assert damaged == 1
    said = [line for line in server.lines if "it is not used" in line]
    assert len(said) == damaged
    # Other steps, and other weights, are other models.
    with Server(package, *options, "--cache-step", 8) as server:
        assert asked(server, ids(1, 90))[1] == 0
    with Server(package, *options, "--random-weights", 1) as server:
        assert asked(server, ids(1, 90))[1] == 0


def test_servers_that_share_a_folder_or_are_killed(package, tmp_path):
    options = ("--cache-dir", tmp_path / "states", "--cache-disk", "600K")
    with Server(package, *options) as one, Server(package, *options) as other:
        truth, _ = conversations(one)
        for _ in range(100):
            if known := asked(other, ids(2, 100))[1]:
                break
            time.sleep(0.1)
        assert known > 60
        assert conversations(other)[0] == truth
    killed = Server(package, *options)
    asked(killed, ids(3, 200))
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    with Server(package, *options) as server:
        got = asked(server, ids(3, 200))[0]
        assert server.metric("prefix_cache_damaged_files_total") == 0
    assert sum(file.stat().st_size for file in (tmp_path / "states").glob("*.states")) <= 600 << 10
    with Server(package, "--cache-memory", 0) as plain:
        assert asked(plain, ids(3, 200))[0] == got


def test_what_cannot_be_used_is_said(package, tmp_path):
    def said(*options):
        return program("serve", package, "--port", 0, *options, expect=2).stderr

    (tmp_path / "file").write_text("")
    assert "is no folder" in said("--cache-dir", tmp_path / "file")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert "chmod go-w" in said("--cache-dir", tmp_path / "open")
    assert "--cache-memory 0" in said("--cache-dir", tmp_path / "states", "--cache-memory", 0)
    assert "at most 16 tokens" in said("--cache-step", 17)
    assert "--cache-dir" in said("--cache-disk", "1G")
    assert "--cache-memory" in said("--cache-memory", "much")
