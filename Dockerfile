FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements/build.txt requirements/run.txt requirements/
RUN python -m venv /opt/unabridged \
    && /opt/unabridged/bin/pip install --require-hashes --only-binary :all: -r requirements/run.txt \
    && pip install --require-hashes --only-binary :all: -r requirements/build.txt
COPY . .
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/unabridged/bin/pip install --no-deps dist/*.whl \
    && /opt/unabridged/bin/pip uninstall --yes pip setuptools


FROM python:3.11-slim
LABEL org.opencontainers.image.title="Unabridged" \
      org.opencontainers.image.licenses="MIT"

# The upstream's certificate is verified against the system's trust store.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin unabridged \
    && install --directory --owner unabridged --group unabridged --mode 0700 /data /data/unabridged

COPY --from=build /opt/unabridged /opt/unabridged

# The embedded store and the secrets made beside it live under $XDG_DATA_HOME/unabridged.
ENV PATH=/opt/unabridged/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    XDG_DATA_HOME=/data
VOLUME /data
USER 10001:10001
WORKDIR /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:8080/readyz', timeout=2)"]

# Off loopback the server starts only with an explicit UNABRIDGED_ADMIN_TOKEN (or _FILE).
ENTRYPOINT ["unabridged", "serve", "--host", "0.0.0.0", "--port", "8080"]
