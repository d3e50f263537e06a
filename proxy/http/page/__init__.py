"""The web page at ``/unabridged/``: what the admin API tells, to look at, and its verbs as buttons.

Made by the server alone: it needs no other host, and hardly any script.
"""

from proxy.http.page.frame import STYLE as STYLE
from proxy.http.page.frame import Frame as Frame
from proxy.http.page.frame import Renderer as Renderer
