"""Muon: momentum whose matrix updates are made orthogonal, for the weights between the layers.

After Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), with the
update scaled to the size of AdamW's as in Liu et al., "Muon is scalable for LLM training" (2025).
It reaches the same loss with clearly fewer tokens, which is what a slow machine needs.
"""

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class Muon:
    """Same-shaped matrices are orthogonalized together, wide ones as they are, tall ones turned."""

    def __init__(self, matrices, momentum=0.95, weight_decay=0.1):
        self.momentum, self.weight_decay = momentum, weight_decay
        self.groups = {}
        for matrix in matrices:
            key = (min(matrix.shape), max(matrix.shape))
            self.groups.setdefault(key, []).append((matrix, torch.zeros_like(matrix)))

    @torch.no_grad()
    def step(self, rate):
        for (_, widest), members in self.groups.items():
            wide = []
            for matrix, moving in members:
                moving.lerp_(matrix.grad, 1 - self.momentum)
                update = matrix.grad.lerp(moving, self.momentum)
                wide.append(update.t() if update.shape[0] > update.shape[1] else update)
            updates = orthogonal(torch.stack(wide))
            for (matrix, _), update in zip(members, updates):
                update = update.t() if update.shape != matrix.shape else update
                matrix.mul_(1 - rate * self.weight_decay)
                matrix.add_(update.float(), alpha=-rate * 0.2 * widest ** 0.5)
                matrix.grad = None


def orthogonal(x):
    """Pushes the singular values of [n, rows, columns], rows <= columns, towards one."""
    a, b, c = COEFFICIENTS
    x = (x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)).bfloat16()
    for _ in range(ITERATIONS):
        square = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x
