"""The admin API: ``/unabridged/v1/…``, JSON, for whoever holds the admin token and nobody else."""

from proxy.http.admin.api import AdminAPI as AdminAPI
