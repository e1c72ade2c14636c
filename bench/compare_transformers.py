"""Compares packages with transformers on the same random weights; JSON lines on stdout.

  compare_transformers.py make CONFIG MODEL [--dtype bfloat16] [--seed 1]
      Writes the folder MODEL: config.json of CONFIG's geometry, and random weights.
  compare_transformers.py check MODEL PACKAGE --program agentcompile [--prompts 1,37,2048,8192]
      Logits after the prompt against a float32 run of transformers, beside the error of transformers
      in the model's own dtype; and greedy tokens, equal wherever float32 decides by more than that.

Needs PyTorch and transformers, and uses the GPU where there is one. Exit code 1: a bound was missed.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

BOUND = 1.5  # times the error of transformers in the same dtype
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make(config_file, folder, dtype, seed):
    folder.mkdir(parents=True)
    shutil.copy(config_file, folder / "config.json")
    config = AutoConfig.from_pretrained(folder)
    torch.manual_seed(seed)
    with torch.device(DEVICE):
        # Whatever type the configuration names.
        model = AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype))
        # As large as trained ones: sums stay near 1, and logits differ. No norm is the identity.
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
            elif name.endswith("bias"):
                torch.nn.init.normal_(weight, std=0.1)
            else:
                torch.nn.init.normal_(weight, mean=1, std=0.1)
    model.save_pretrained(folder)


def run_package(arguments, ids, new_tokens):
    command = [arguments.program, "run", str(arguments.package), "--ids", ",".join(map(str, ids)),
               "-n", str(new_tokens), "--logits", "--json"]
    if arguments.device:
        command += ["--device", arguments.device]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:3])} ...: exit code {done.returncode}\n{done.stderr}")
    said = json.loads(done.stdout)
    return torch.tensor(said["last_logits"], dtype=torch.float64), said["generated"]


@torch.no_grad()
def last_logits(model, ids, count):
    """After each of the last `count` tokens."""
    out = model(torch.tensor([ids], device=DEVICE), logits_to_keep=count, use_cache=False)
    return out.logits[0].double().cpu()


def check(arguments):
    config = AutoConfig.from_pretrained(arguments.model)
    generator = torch.Generator().manual_seed(arguments.seed)
    prompts = [torch.randint(config.vocab_size, (n,), generator=generator).tolist()
               for n in arguments.prompts]
    ours = [run_package(arguments, ids, arguments.new_tokens) for ids in prompts]
    torch.backends.cuda.matmul.allow_tf32 = False
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype="auto").to(DEVICE)
    own_dtype = [last_logits(model, ids, 1)[0] for ids in prompts]
    dtype = str(model.dtype).removeprefix("torch.")
    model = model.float()
    failed = False
    for ids, (logits, generated), theirs in zip(prompts, ours, own_dtype):
        exact = last_logits(model, ids + generated[:-1], len(generated))
        errors = {name: (float((x - exact[0]).square().mean().sqrt()),
                         float((x - exact[0]).abs().max()))
                  for name, x in (("ours", logits), ("theirs", theirs))}
        ratio = errors["ours"][0] / max(errors["theirs"][0], 1e-9)
        wrong = 0
        for row, token in zip(exact, generated):
            gap = float(row.max() - row[token])
            wrong += gap > 2 * errors["theirs"][1]
        good = wrong == 0 and (ratio <= BOUND or dtype == "float32")
        failed |= not good
        print(json.dumps({
            "what": "against transformers", "model": pathlib.Path(arguments.model).name,
            "dtype": dtype, "prompt": len(ids), "rms_error": errors["ours"][0],
            "rms_error_transformers": errors["theirs"][0], "ratio": ratio,
            "max_error": errors["ours"][1], "max_error_transformers": errors["theirs"][1],
            "tokens": len(generated), "wrong_tokens": wrong, "good": good}), flush=True)
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    maker = commands.add_parser("make")
    maker.add_argument("config", type=pathlib.Path)
    maker.add_argument("model", type=pathlib.Path)
    maker.add_argument("--dtype", default="bfloat16")
    maker.add_argument("--seed", type=int, default=1)
    checker = commands.add_parser("check")
    checker.add_argument("model")
    checker.add_argument("package")
    checker.add_argument("--program", default="agentcompile")
    checker.add_argument("--device")
    checker.add_argument("--prompts", default="1,37,2048,8192",
                         type=lambda text: [int(n) for n in text.split(",")])
    checker.add_argument("--new-tokens", type=int, default=16)
    checker.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.config, arguments.model, arguments.dtype, arguments.seed)
        return 0
    return check(arguments)


if __name__ == "__main__":
    sys.exit(main())
