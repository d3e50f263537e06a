"""The web page at ``/unabridged/``: shows the data of the admin API, with its verbs as buttons.

Rendered by the server: it needs no other host, and hardly any script.
"""

from proxy.http.page.frame import STYLE as STYLE
from proxy.http.page.frame import Frame as Frame
from proxy.http.page.frame import Renderer as Renderer
