# Build the kernels where nvcc is, run them where it is not.
#
#     docker build -t losscli .
#     docker run --rm --gpus all losscli bench --loss mse
#
# CUDA has to be the one of PyTorch; ARCHITECTURES names the GPUs to compile for, as no GPU is there
# while an image is built.
ARG CUDA=13.0.2

FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04 AS build
ARG ARCHITECTURES=80;90;100
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/losscli
ENV PATH=/opt/losscli/bin:$PATH
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY losscli losscli
COPY csrc csrc
COPY configs configs
RUN pip install --no-cache-dir -c constraints.txt '.[gpu]'
ENV LOSSCLI_CACHE_DIR=/opt/losscli/kernels
RUN losscli build --device cpu \
    && LOSSCLI_CUDA_ARCHITECTURES="$ARCHITECTURES" losscli build --device cuda

# g++ is for CPUs other than the one of the build, whose kernels are compiled at their first use.
FROM nvidia/cuda:${CUDA}-runtime-ubuntu24.04
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ python3 python3-dev \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/losscli /opt/losscli
ENV PATH=/opt/losscli/bin:$PATH LOSSCLI_CACHE_DIR=/opt/losscli/kernels
WORKDIR /work
ENTRYPOINT ["losscli"]
CMD ["--help"]
