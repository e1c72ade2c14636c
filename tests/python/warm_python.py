"""A Python that has imported PyTorch already, for the many captures that tests start.

The program starts an interpreter for each capture, which takes seconds to import PyTorch. Tests give it
`client.sh` instead (AGENTCOMPILE_PYTHON), which hands its arguments, environment, folder and open files
to a server. The server forks a child for it, with all modules in place. What the child prints and how it
ends is what a fresh interpreter does; where that cannot be, as with another PYTHONPATH, the client starts
a fresh one.

    warm_python.py serve SOCKET
    warm_python.py ask SOCKET ARGUMENTS...
"""

import array
import gc
import json
import os
import signal
import socket
import struct
import sys

# Variables that a module reads when it is imported.
READ_AT_IMPORT = ("PYTHON", "HF_", "TRANSFORMERS_", "TORCH", "OMP_", "LD_", "CUDA_")
MOST_BYTES = 1 << 20


def imported_with(environment: dict) -> dict:
    return {k: v for k, v in environment.items() if k.startswith(READ_AT_IMPORT)}


def ask(path: str, arguments: list) -> None:
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    content = json.dumps(request).encode("utf-8", "surrogateescape")
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
        server.sendmsg([struct.pack("I", len(content))], files)
        server.sendall(content)
        answer = b""
        while len(answer) < 4:
            part = server.recv(4 - len(answer))
            if not part:
                sys.exit("the server of warm_python.py is gone")
            answer += part
    (code,) = struct.unpack("i", answer)
    if code == FRESH:
        os.execv(sys.executable, [sys.executable, *arguments])
    if code < 0:  # as the child ended
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


FRESH = 1000  # no exit code


def read_request(client: socket.socket) -> tuple:
    header, ancillary, _, _ = client.recvmsg(4, socket.CMSG_SPACE(3 * 4))
    files = array.array("i")
    for _, _, data in ancillary:
        files.frombytes(data)
    (size,) = struct.unpack("I", header)
    if size > MOST_BYTES:
        raise ValueError("a request that is too long")
    content = b""
    while len(content) < size:
        content += client.recv(size - len(content)) or exit_now()
    return json.loads(content.decode("utf-8", "surrogateescape")), list(files)


def exit_now():
    raise ConnectionError("the client is gone")


def run(request: dict, files: list) -> int:
    """In the child: what `python -c CODE ...` does. Returns the exit code."""
    import traceback
    import types

    for place, file in enumerate(files):
        os.dup2(file, place)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.argv = ["-c", *request["arguments"][2:]]
    sys.path[0] = ""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    code = 0
    try:
        exec(compile(request["arguments"][1], "<string>", "exec"), main.__dict__)
    except SystemExit as end:
        code = end.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return (code or 0) & 255


def is_gone(client: socket.socket) -> bool:
    try:
        return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def attend(client: socket.socket) -> None:
    """In a child of the server's: runs the request in a child of its own, and ends that where the client
    goes away."""
    import time

    request, files = read_request(client)
    fits = request["arguments"][:1] == ["-c"] and len(request["arguments"]) > 1
    if not fits or imported_with(request["environment"]) != imported_with(os.environ):
        client.sendall(struct.pack("i", FRESH))
        return
    child = os.fork()
    if child == 0:
        client.close()
        code = 1
        try:
            code = run(request, files)
        finally:
            os._exit(code)
    for file in files:
        os.close(file)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if is_gone(client):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.005)
    client.sendall(struct.pack("i", os.waitstatus_to_exitcode(status)))


def warm_up() -> None:
    """Imports what a capture needs, also what PyTorch imports late. The child's random numbers are those
    of a fresh interpreter."""
    import torch
    import transformers  # noqa: F401
    from transformers.models.llama import modeling_llama  # noqa: F401

    torch.set_num_threads(1)  # threads do not live on in a child
    state = torch.get_rng_state()

    class Small(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8)

        def forward(self, ids):
            x = self.embedding(ids)
            mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
            x = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
            return self.head(torch.nn.functional.silu(x) * x.pow(2).mean(-1, keepdim=True))

    tokens = torch.export.Dim("S", min=2, max=64)
    ids = torch.zeros(1, 7, dtype=torch.long)
    torch.export.export(Small(), (ids,), dynamic_shapes=({1: tokens},)).run_decompositions()
    torch.set_rng_state(state)


def serve(path: str) -> None:
    warm_up()
    gc.freeze()  # a child's collections neither walk through what is there nor copy its pages
    gc.set_threshold(100_000, 20, 50)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(64)
        while True:
            client, _ = server.accept()
            if os.fork() == 0:
                server.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                try:
                    attend(client)
                except (ConnectionError, OSError):
                    pass
                finally:
                    os._exit(0)
            client.close()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        ask(sys.argv[2], sys.argv[3:])
