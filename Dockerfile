# ccrank serve in a container, from the wheel. Build the wheel first:
#   python -m pip wheel --no-deps --wheel-dir dist . && docker build -t ccrank .
FROM python:3.12-slim

# A CPU build of torch: as a dependency it would bring gigabytes of CUDA.
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu

COPY dist/ccrank-*.whl /tmp/
RUN pip install --no-cache-dir "$(ls /tmp/ccrank-*.whl)[server]" && rm /tmp/ccrank-*.whl

RUN useradd --create-home ccrank
USER ccrank
ENV CCRANK_CACHE=/home/ccrank/cache
# The default model is part of the image, so that containers start without a network.
RUN mkdir -p "$CCRANK_CACHE" && ccrank models pull default
# Models and readings; a named volume keeps them. Declared last: a build drops what it writes to a volume.
VOLUME ["/home/ccrank/cache"]

EXPOSE 8000
# Exec form: ccrank is process 1 and gets SIGTERM, on which it finishes its requests.
ENTRYPOINT ["ccrank", "serve", "--host", "0.0.0.0"]
CMD ["--port", "8000"]

HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
