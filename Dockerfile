# The service as a container image.
#
#   docker build -t amends .
#   docker run --init --stop-timeout 30 -p 8000:8000 -v amends:/data -e AMENDS_API_KEYS=... amends
#
# AMENDS_API_KEYS is needed: the image listens on all addresses, and without a key the service
# refuses to listen on any but loopback. Without AMENDS_DATABASE_URL it runs its own Postgres in
# /data. `--init` reaps what a killed Postgres leaves behind. `--stop-timeout 30`: a stop follows
# what is out to its end, which takes up to 28 s, and Docker would kill after 10. With
# `--read-only --tmpfs /tmp` nothing is written outside of /data and /tmp, where Postgres' socket is.
#
# Where no registry can be asked, lay the wheels into wheels/ first and the build asks for nothing:
#
#   pip download -d wheels --require-hashes -r requirements/runtime.txt -r requirements/build.txt

# Any image with Python 3.12 or later as python3, with venv, on glibc: the embedded Postgres and
# CEL have no wheels for musl.
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /srv/amends
RUN python3 -m venv /opt/amends

COPY wheels/ /wheels/
COPY requirements/ requirements/
# The build backend goes aside to /backend: it makes the command below and is left behind.
RUN if ls /wheels/*.whl >/dev/null 2>&1; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels; fi \
    && /opt/amends/bin/pip install --require-hashes -r requirements/runtime.txt \
    && /opt/amends/bin/pip install --require-hashes -r requirements/build.txt --target /backend

# Installed editable: the service looks for migrations/ and sagas/ beside app/. The bracketed name
# is a pattern, which may match nothing.
COPY LICENSE pyproject.toml alembic.in[i] ./
COPY app/ app/
COPY migrations/ migrations/
COPY sagas/ sagas/
# The service's user reads what root copied, whatever the umask of the checkout was.
RUN chmod -R a+rX,go-w . \
    && PYTHONPATH=/backend /opt/amends/bin/pip install --no-deps --no-build-isolation --editable . \
    && /opt/amends/bin/python -m compileall -q app \
    && /opt/amends/bin/pip check \
    && rm -rf requirements

FROM ${BASE}
RUN groupadd --gid 10001 amends \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin amends \
    && install -d -m 0700 -o 10001 -g 10001 /data
COPY --from=build /opt/amends /opt/amends
COPY --from=build /srv/amends /srv/amends

ENV PATH=/opt/amends/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    AMENDS_HOST=0.0.0.0 \
    AMENDS_PORT=8000 \
    AMENDS_DATA_DIR=/data
WORKDIR /srv/amends
USER 10001:10001
VOLUME /data
EXPOSE 8000

# The first start makes a database: the start period covers it. http.client heeds no proxy.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, os; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['AMENDS_PORT']), timeout=4); c.request('GET', '/health/ready'); raise SystemExit(c.getresponse().status != 200)"]

ENTRYPOINT ["amends"]
CMD ["serve"]
