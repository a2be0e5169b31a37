# losscli with its CUDA kernels: compiled in an image that has nvcc, run in one without.
#
#   docker build -t losscli .
#   docker run --rm --gpus all losscli bench --loss mse
#
# LOSSCLI_CUDA_ARCHITECTURES: the cards to compile for, as losscli build takes them.
ARG CUDA=13.0.1
ARG SYSTEM=ubuntu24.04

FROM nvidia/cuda:${CUDA}-devel-${SYSTEM} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# The dependencies first: a change of losscli's sources does not install them anew.
COPY constraints.txt .
RUN python3 -m venv /opt/losscli \
    && /opt/losscli/bin/pip install --no-cache-dir -c constraints.txt \
        torch numpy ninja click msgspec platformdirs tabulate PyYAML nvidia-ml-py
COPY . .
RUN /opt/losscli/bin/pip install --no-cache-dir -c constraints.txt ".[gpu]"
ARG LOSSCLI_CUDA_ARCHITECTURES="80;90;100"
ENV LOSSCLI_CACHE_DIR=/opt/losscli/kernels
RUN LOSSCLI_CUDA_ARCHITECTURES=${LOSSCLI_CUDA_ARCHITECTURES} \
    /opt/losscli/bin/losscli build --device cuda

# The compiler is for the CPU's kernels, which are compiled for the machine that runs them, and for
# kernels of one's own.
FROM nvidia/cuda:${CUDA}-base-${SYSTEM}
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/losscli /opt/losscli
ENV PATH=/opt/losscli/bin:${PATH} \
    LOSSCLI_CACHE_DIR=/opt/losscli/kernels
WORKDIR /work
ENTRYPOINT ["losscli"]
CMD ["--help"]
