"""A plain landing SGD written as the peers write theirs: right by default, with one of their defects when asked.

It proves that each check of the contract passes for a right optimizer and fails for a wrong one.
"""

import torch


def norm(M):
    return torch.linalg.vector_norm(M, dim=(-2, -1))


def column(numbers):
    return numbers.unsqueeze(-1).unsqueeze(-1)


class PeerSGD(torch.optim.Optimizer):
    """SGD with the landing field, eq. (20) and (14), parameter by parameter."""

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        nesterov=False,
        weight_decay=0,
        *,
        attraction=1.0,
        safe_radius=0.5,
        safeguard="lemma",
        defect=None,
        foreach=None,
    ):
        self.defect = defect
        if defect == "exhausts a generator":
            self.number = len(list(params))
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "nesterov": nesterov}
        options |= {"weight_decay": weight_decay, "attraction": attraction, "safe_radius": safe_radius}
        super().__init__(params, {**options, "safeguard": safeguard})
        for group in self.param_groups:
            if defect == "keeps a lambda in the group":
                group["criterion"] = lambda: True
            for param in group["params"]:
                if defect == "moves parameters at construction":
                    param.data.mul_(1.01)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None and self.defect != "never calls the closure":
            with torch.enable_grad():
                loss = closure()
        if self.defect == "does not return the loss":
            loss = None
        if self.defect == "knows only the first gradients" and not self.state:
            for param in [param for group in self.param_groups for param in group["params"]]:
                if param.grad is not None:
                    self.state[param]["momentum_buffer"] = torch.zeros_like(param)
        for group in self.param_groups:
            lr = group["lr"]
            for param in group["params"]:
                if param.grad is not None:
                    used = self.move(param, lr, group)
                    lr = used.min().item() if self.defect == "leaks the clipped step" else lr
        return loss

    def move(self, param, lr, group):
        if self.defect == "writes weight decay into .grad":
            param.grad.add_(param, alpha=group["weight_decay"])
        wide = param.shape[-2] < param.shape[-1] and self.defect != "forgets wide matrices"
        X, G = (param.mT, param.grad.mT) if wide else (param, param.grad)
        G = self.estimate(param, X, G, group)
        identity = torch.eye(X.shape[-1], dtype=X.dtype, device=None if self.defect == "constants" else X.device)
        Delta = X.mH @ X - identity
        A = (G @ X.mH - X @ G.mH) / 2
        F = A @ X + group["attraction"] * X @ Delta
        if self.defect == "asks the host" and not torch.isfinite(F).all():
            return torch.zeros(())
        d, g = norm(Delta), norm(F)
        if self.defect == "one norm for the batch":
            d, g = (n.square().sum().sqrt().expand(n.shape) for n in (d, g))
        step = torch.full_like(d, lr)
        if group["safeguard"] is not None:
            step = torch.minimum(step, self.bound(d, g, group))
        moved = X - column(step) * F
        if self.defect not in ("NaN outside", "no way back"):
            scaled = X / column(torch.where(d > 1.75, (1 + d).sqrt(), 1))
            recovered = 1.5 * scaled - scaled @ (scaled.mH @ scaled) / 2
            moved = torch.where(column(d > group["safe_radius"] * (1 + 1e-13)), recovered, moved)
        new = moved.mT if wide else moved
        param.zero_().add_(new)
        return step

    def estimate(self, param, X, G, group):
        momentum = group["momentum"]
        if not momentum or self.defect == "momentum without effect":
            return G
        state = self.state[param]
        if self.defect == "knows only the first gradients" and "momentum_buffer" not in state:
            raise KeyError("momentum_buffer")
        if "buffer" not in state:
            state["buffer"] = G.clone()
            if self.defect == "first momentum step twice too long":
                state["buffer"].mul_(1 + momentum)
        else:
            damped = 0 if self.defect == "dampening without effect" else group["dampening"]
            state["buffer"].mul_(momentum).add_(G, alpha=1 - damped)
        direction, share = state["buffer"], 1
        if group["nesterov"] and self.defect != "nesterov without effect":
            direction, share = G + momentum * state["buffer"], 1 / (1 + momentum)
        if self.defect != "remembers the normal part":
            C = X.mH @ direction
            state["buffer"] = state["buffer"] - share * X @ (C + C.mH) / 2
        return direction

    def bound(self, d, g, group):
        """Eq. (14)."""
        pull = group["attraction"] * d * (1 - d)
        slack = group["safe_radius"] - d
        if self.defect != "NaN outside":
            slack = slack.clamp(min=0)
        root = (pull + torch.sqrt(pull**2 + g**2 * slack)) / g**2
        if self.defect != "NaN at a stationary point":
            root = torch.where(g == 0, torch.inf, root)
        return root if self.defect == "no cap" else root.clamp(max=1 / (2 * group["attraction"]))


class PeerRiemannianSGD(torch.optim.Optimizer):
    """X <- qf(X - lr grad f(X)) in the Euclidean metric, or a step of another length or direction."""

    def __init__(self, params, lr=1e-3, *, metric="euclidean", retraction="qr", length=1.0):
        self.length = length
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                C = param.mT @ param.grad
                tangent = param.grad - param @ (C + C.mT) / 2
                Q, R = torch.linalg.qr(param - self.length * group["lr"] * tangent)
                param.copy_(Q * R.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2))
