"""Labels made visible: drawings of one sample's labels, charts, and the HTML page around them.

Pixels and markup only. Which samples are shown is left to `preview`, `report` and `search`. Pages
are self-contained: no request leaves them, pictures are data URIs. Needs neither ray nor torch.
"""
