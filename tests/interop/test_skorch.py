"""skorch: the optimizer's class, cloned in a grid search; modules by class and as an instance."""

import pickle

import numpy as np
import pytest
import torch
from interop.packages import needs
from torch import nn

import glideslope as gs

X = np.random.default_rng(0).normal(size=(60, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int64")


class Net(nn.Sequential):
    def __init__(self, width=8):
        torch.manual_seed(0)
        super().__init__(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))
        gs.orthogonalize_(self)


@pytest.mark.parametrize("by_instance", [False, True])
def test_a_grid_search_clones_and_constrains_every_net(by_instance):
    skorch = needs("skorch")
    from sklearn.model_selection import GridSearchCV

    net = skorch.NeuralNetClassifier(
        Net() if by_instance else Net,
        criterion=nn.CrossEntropyLoss,
        optimizer=gs.LandingSGD,
        optimizer__momentum=0.9,
        max_epochs=8,
        verbose=0,
        train_split=None,
    )
    grid = {"lr": [0.001, 0.1]} if by_instance else {"lr": [0.001, 0.1], "module__width": [4, 8]}
    search = GridSearchCV(net, grid, cv=2, scoring="accuracy", error_score="raise").fit(X, Y)
    best = search.best_estimator_
    assert search.best_params_["lr"] == 0.1
    assert search.best_score_ > 0.7
    assert [group["orthogonal"] for group in best.optimizer_.param_groups] == [True, False]
    assert gs.orthogonality(best.module_).largest_distance < 0.1
    loaded = pickle.loads(pickle.dumps(best))
    assert np.array_equal(loaded.predict_proba(X), best.predict_proba(X))
    gs.project_(loaded.module_)
    loaded.partial_fit(X, Y)
    assert gs.orthogonality(loaded.module_).largest_distance < 0.1
