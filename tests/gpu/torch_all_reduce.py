#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduces of PyTorch in a world of one rank, eager and in a CUDA graph, through whatever libnccl.so.2 the process
finds first; with --from FILE that must be it. Exits with 77 where there is no PyTorch with a GPU."""
import os
import sys

SKIPPED = 77


def main():
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        print(f"skipped: {error}")
        return SKIPPED
    if not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        return SKIPPED
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29577")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "=lo")
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=0, world_size=1)
    data = torch.arange(1000, dtype=torch.float32, device="cuda")
    wanted = data.clone()
    dist.all_reduce(data)
    torch.cuda.synchronize()
    assert torch.equal(data, wanted), "eager"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(data)
    for factor in range(3):
        data.copy_(wanted * factor)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(data, wanted * factor), f"replay {factor}"
    dist.destroy_process_group()
    mapped = sorted({line.split()[-1] for line in open("/proc/self/maps", encoding="utf-8") if "libnccl.so" in line})
    if len(sys.argv) == 3 and os.path.realpath(sys.argv[2]) not in map(os.path.realpath, mapped):
        print(f"{sys.argv[2]} is not in the process, which has {mapped}")
        return 1
    print(f"torch {torch.__version__}: all-reduce of one rank, eager and replayed: right; libnccl: {', '.join(mapped)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
