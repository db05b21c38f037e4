"""Nine kernels for the benchmarks of levels: three bound by arithmetic, three by memory, three by launching.

The list was fixed before anything was measured over levels; at default clocks a softmax was found to use a third of the
memory's bandwidth, and row sums took its place. Inputs are random, made anew in each process. Each kernel
is a function that makes its inputs and returns one call; `default_rounds` makes all nine take the same time at default
clocks, so that each class has a third.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[[], object]


def bf16_matmul(torch: Any) -> Call:
    """Multiply 8192 × 8192 matrices on the tensor cores."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return lambda: a @ b


def fp32_matmul(torch: Any) -> Call:
    """Multiply 4096 × 4096 matrices in plain fp32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.randn(4096, 4096, device="cuda") for _ in range(2))
    return lambda: a @ b


def attention(torch: Any) -> Call:
    """Attend over 4096 positions: 8 sequences, 16 heads of 128."""
    q, k, v = (torch.randn(8, 16, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(q, k, v)


def memory_copy(torch: Any) -> Call:
    """Copy 4 GiB on the device."""
    source = torch.randn(1 << 30, device="cuda")
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def triad(torch: Any) -> Call:
    """Add a multiple of one vector of 2 GiB to another."""
    a, b = (torch.randn(1 << 29, device="cuda") for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.add(a, b, alpha=0.5, out=out)


def row_sums(torch: Any) -> Call:
    """Add up 262,144 rows of 4096 numbers, 4 GiB."""
    rows = torch.randn(1 << 18, 4096, device="cuda")
    out = torch.empty(1 << 18, device="cuda")
    return lambda: torch.sum(rows, dim=1, out=out)


def tiny_adds(torch: Any) -> Call:
    """Launch 200 additions to 4096 numbers, one after the other."""
    small = torch.randn(4096, device="cuda")

    def call() -> None:
        for _ in range(200):
            small.add_(1e-6)

    return call


def small_steps(torch: Any) -> Call:
    """Multiply small matrices 40 times and wait for a number after each, as a loop with a stopping rule does."""
    a = torch.randn(256, 256, device="cuda")

    def call() -> float:
        total = 0.0
        for _ in range(40):
            total += float((a @ a).sum().item())
        return total

    return call


def optimizer(torch: Any) -> Call:
    """Take one step of Adam over 100 tensors of 1024 numbers, tensor by tensor."""
    tensors = [torch.randn(1024, device="cuda", requires_grad=True) for _ in range(100)]
    for one in tensors:
        one.grad = torch.randn(1024, device="cuda")
    steps = torch.optim.Adam(tensors, foreach=False, fused=False)
    return lambda: steps.step()


KERNELS: dict[str, tuple[str, Callable[[Any], Call]]] = {
    "bf16_matmul": ("compute", bf16_matmul),
    "fp32_matmul": ("compute", fp32_matmul),
    "attention": ("compute", attention),
    "memory_copy": ("memory", memory_copy),
    "triad": ("memory", triad),
    "row_sums": ("memory", row_sums),
    "tiny_adds": ("launch", tiny_adds),
    "small_steps": ("launch", small_steps),
    "optimizer": ("launch", optimizer),
}


def default_rounds(seconds: dict[str, float], each_s: float = 1.0) -> dict[str, int]:
    """Count the calls of each kernel that take so long at default clocks."""
    return {name: max(1, round(each_s / one_s)) for name, one_s in seconds.items()}
