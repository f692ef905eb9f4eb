"""Results as pages: one HTML file with everything in it, which opens from the disk and needs no network.

Charts are stated in Vega-Lite, whose scripts are put into the page (0.9 MB; Plotly's are 4.7 MB, and its widgets would
need more of our own JavaScript: here selections, sliders and zoom are part of a chart's description).
"""

from hf_mlcl._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
