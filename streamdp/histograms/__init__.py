"""Static differentially private histograms: one method per file, registered by name with its privacy statement."""

from streamdp.histograms.base import HistogramMethod, Noisy, Statement, method_named, method_names, register
from streamdp.histograms.efpa import Efpa
from streamdp.histograms.hierarchical import Hierarchical
from streamdp.histograms.laplace import Laplace
from streamdp.histograms.merged import Merged
from streamdp.histograms.php import Php
from streamdp.histograms.post import POST_OPTIONS, post_process
from streamdp.histograms.privelet import Privelet
from streamdp.histograms.psd import Psd

for _method in (Laplace(), Efpa(), Hierarchical(), Merged(), Php(), Privelet(), Psd()):
    register(_method)

__all__ = [
    "POST_OPTIONS",
    "Efpa",
    "Hierarchical",
    "HistogramMethod",
    "Laplace",
    "Merged",
    "Noisy",
    "Php",
    "Privelet",
    "Psd",
    "Statement",
    "method_named",
    "method_names",
    "post_process",
    "register",
]
