# Two images: the page with the planner (`--target web`, the default), and the engine that serves a checkpoint.
#
#   docker build -t dscale .                     && docker run -p 8642:8642 dscale
#   docker build -t dscale-engine --target engine . && docker run --gpus all -p 8000:8000 -v MODEL:/model dscale-engine \
#     /model --host 0.0.0.0
#
# Python packages have the versions of constraints.txt, with which the tests run; CUDA's libraries are those that
# jax[cuda12] asks for. The base image is a tag, whose contents change with security updates; for the same image every
# time, give one by its digest:
#
#   docker build -t dscale --build-arg BASE=python@sha256:DIGEST .
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE} AS planner
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE THIRD_PARTY.md MANIFEST.in ./
COPY src ./src
RUN pip install --no-cache-dir --constraint constraints.txt '.[web,plot,hub,mcp]' && useradd --create-home dscale

FROM planner AS engine
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve]' 'jax[cuda12]'
USER dscale
WORKDIR /home/dscale
EXPOSE 8000
ENTRYPOINT ["dscale", "run", "serve"]

FROM planner AS web
USER dscale
WORKDIR /home/dscale
EXPOSE 8642
ENTRYPOINT ["dscale"]
CMD ["web", "--host", "0.0.0.0", "--no-browser"]
