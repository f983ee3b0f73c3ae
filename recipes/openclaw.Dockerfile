# A sandbox image of your own: OpenClaw, python3, git, and a user that is not root, so that an
# agent can change neither OpenClaw nor the Python that grades it.
#
#   docker build -t openclaw-runner:2026.9.6 --build-arg OPENCLAW_VERSION=2026.9.6 \
#       -f openclaw.Dockerfile .
#   pytest --pinchbench --pinchbench-image openclaw-runner:2026.9.6 ...
#
# Add what your tasks' agents should find (a PDF reader, pandas) to the apt-get line.

ARG NODE_VERSION=24.16.0
ARG BASE=node:${NODE_VERSION}-bookworm-slim

FROM ${BASE} AS openclaw
ARG OPENCLAW_VERSION=2026.9.6
WORKDIR /opt/openclaw
# no scripts: nothing that is fetched runs at build time; source maps are a third of the size
RUN npm install --ignore-scripts --omit=dev --no-audit --no-fund openclaw@${OPENCLAW_VERSION} \
    && find . -name '*.map' -delete

FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git procps python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 agent \
    && install -d -o agent /workspace
COPY --from=openclaw /opt/openclaw /opt/openclaw
RUN ln -s /opt/openclaw/node_modules/.bin/openclaw /usr/local/bin/openclaw && openclaw --version
USER agent
WORKDIR /workspace
CMD ["sleep", "infinity"]
