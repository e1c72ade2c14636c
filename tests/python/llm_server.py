"""A service that speaks Anthropic's Messages API and chat completions, answers from the prompt's
own candidates, and misbehaves on request."""

import json
import re
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def candidates(prompt: str) -> list:
    """The ids that a prompt lists, best first."""
    section = prompt.split("## Candidates")[1].split("## Reply")[0]
    return re.findall(r"^  (\S+/\S+) +[\d.]+ us", section, re.M)


def advice(prompt: str, change=lambda ids: ids) -> dict:
    order = change(candidates(prompt))[:16]
    return {"label": "a region", "order": order, "hints": [], "risks": [], "fusions": []}


class Service(ThreadingHTTPServer):
    """`faults` is a list of actions, one used up by each request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults = []
        self.answer = lambda prompt: json.dumps(advice(prompt))
        self.requests = []  # (path, headers, body)
        self.at_once = self.most_at_once = 0
        self.pause = 0
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_):  # connections that a test or a time limit has ended
        pass


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def reply(self, status, body, headers=(), cut=None):
        self.send_response(status)
        for key, value in headers:
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut])
        if cut is not None:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_POST(self):
        service = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with service.lock:
            service.requests.append((self.path, dict(self.headers), body))
            service.at_once += 1
            service.most_at_once = max(service.most_at_once, service.at_once)
            fault = service.faults.pop(0) if service.faults else ("none",)
        time.sleep(service.pause)
        with service.lock:  # before the response, behind which the next request may come
            service.at_once -= 1
        self.respond(fault, body)

    def respond(self, fault, body):
        kind, *arguments = fault
        prompt = body["messages"][0]["content"]
        anthropic = self.path.endswith("/v1/messages")
        whole = (self.anthropic if anthropic else self.openai)(body, self.server.answer(prompt))
        whole = json.dumps(whole).encode()
        if kind == "none":
            self.reply(200, whole)
        elif kind == "status":
            error = {"error": {"type": "some_error", "message": arguments[1]}}
            self.reply(arguments[0], json.dumps(error).encode(), arguments[2:])
        elif kind == "body":
            self.reply(200, arguments[0])
        elif kind == "cut":
            self.reply(200, whole, cut=len(whole) // 2)
        elif kind == "hang":
            time.sleep(arguments[0])
        elif kind == "drip":  # a byte now and then: never silent for long, never done
            self.send_response(200)
            self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            for byte in whole:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.1)
        elif kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    @staticmethod
    def anthropic(body, text):
        if "tool_choice" in body:
            block = {"type": "tool_use", "id": "t1", "name": body["tool_choice"]["name"]}
            block["input"] = json.loads(text)
        else:
            block = {"type": "text", "text": text}
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body["model"] + "-20260101",
            "content": [block],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 2000, "output_tokens": 100},
        }

    @staticmethod
    def openai(body, text):
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 2000, "completion_tokens": 100, "total_tokens": 2100},
        }
