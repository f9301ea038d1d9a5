"""scikit-learn estimators that learn from batches: principal components and independent components."""

try:
    import sklearn  # noqa: F401
except ImportError as error:  # pragma: no cover - tested in a process without scikit-learn
    raise ImportError("glideslope.estimators needs scikit-learn (extra 'sklearn'): pip install scikit-learn") from error

from glideslope.estimators.online_ica import OnlineICA
from glideslope.estimators.online_pca import OnlinePCA

__all__ = ["OnlineICA", "OnlinePCA"]
