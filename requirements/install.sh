#!/bin/sh
# Install a project path with its dependencies: install.sh PYTHON LOCK PATH[EXTRAS] [MORE ARGUMENTS FOR pip]
# LOCK is a file of exact versions, or "newest" for the newest versions that pyproject.toml allows.
set -eu
python=$1 lock=$2 project=$3
shift 3
cpu_index=https://download.pytorch.org/whl/cpu

if command -v "${UV-uv}" >/dev/null; then
  pip="${UV-uv} pip install --quiet --python $python"
else
  pip="$python -m pip install --quiet --disable-pip-version-check"
fi
# Wheels only: to build a package from its source is to run code of whoever published it. The project itself is built.
pip="$pip --only-binary=:all: --no-binary=ccrank"

if [ "$lock" = newest ]; then
  constraints=
  torch=torch
else
  constraints="-c $lock"
  torch=$(grep '^torch==' "$lock")
fi

no_nvidia_driver() {
  [ "$(uname -s)" = Linux ] && [ ! -e /proc/driver/nvidia/version ] && ! command -v nvidia-smi >/dev/null
}

# The time-out of urlopen does not bound the lookup of the name.
answers() {
  timeout 6 "$python" -c "import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=5)" "$1/torch/" 2>/dev/null
}

installed() {
  "$python" -c "import sys, importlib.metadata as m; v = m.version('torch').split('+')[0]
sys.exit(sys.argv[1] not in ('torch', 'torch==' + v))" "$torch" 2>/dev/null
}

# torch first: as a dependency of something else it would bring gigabytes of CUDA. Its own dependencies come with the rest.
if ! installed; then
  if no_nvidia_driver && answers "$cpu_index" && $pip $constraints --index-url "$cpu_index" --no-deps "$torch"; then
    echo "torch: no NVIDIA driver; the CPU build from PyTorch's own index"
  else
    echo "torch: $torch from the default package index"
    $pip $constraints "$torch"
  fi
fi

# The build backend under the lock too: a build environment of its own would take the newest setuptools.
$pip $constraints 'setuptools>=77'
$pip $constraints --no-build-isolation "$@" -e "$project"
