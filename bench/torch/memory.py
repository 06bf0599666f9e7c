"""Peak memory of a process that trains resnet18 as tandem.apply runs it; MALLOC_NONE=1 leaves glibc as it is.

usage: memory.py fp32|int8_full|int8|bf16 BATCH IMAGE STEPS [--varying]     one thread; libraries in build/
With --varying, three of four steps have some half of the batch.
"""

import argparse
import os
import resource
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import torch
import torchvision

import tandem
from tandem._memory import keep_freed_memory

parser = argparse.ArgumentParser()
parser.add_argument("precision", choices=("fp32", "int8_full", "int8", "bf16"))
for number in ("batch", "image", "steps"):
    parser.add_argument(number, type=int)
parser.add_argument("--varying", action="store_true")
options = parser.parse_args()
torch.set_num_threads(1)
torch.manual_seed(0)
module = torchvision.models.resnet18()
keep_freed_memory()
if options.precision != "fp32":
    tandem.apply(module, options.precision)
optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
for step in range(options.steps):
    batch = options.batch // 2 + step % 3 if options.varying and step % 4 else options.batch
    x, y = torch.randn(batch, 3, options.image, options.image), torch.randint(0, 1000, (batch,))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(module(x), y).backward()
    optimizer.step()
print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")
