"""`gs.minimize` against the Riemannian solvers of pymanopt."""
