#!/usr/bin/env bash
# Builds h5py for a parallel HDF5 in an environment of its own, and runs the tests that need it: what CI may do where the
# system has both (Debian: libhdf5-mpich-dev). Nothing outside the environment is changed.
#
# usage: scripts/parallel_hdf5.sh ENVIRONMENT
#   CC, MPIEXEC, HDF5_INCLUDEDIR, HDF5_LIBDIR: another MPI's compiler and launcher, and its HDF5
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 ENVIRONMENT" >&2; exit 2; }
environment=$(realpath -m "$1")
cd "$(dirname "$0")/.."

export CC=${CC:-mpicc.mpich}
export MPICC=$CC HDF5_MPI=ON
export HDF5_INCLUDEDIR=${HDF5_INCLUDEDIR:-/usr/include/hdf5/mpich}
export HDF5_LIBDIR=${HDF5_LIBDIR:-/usr/lib/$(gcc -print-multiarch)/hdf5/mpich}
launcher=$(command -v "${MPIEXEC:-mpiexec.mpich}") || { echo "no ${MPIEXEC:-mpiexec.mpich} here" >&2; exit 1; }

if [ ! -x "$environment/bin/python" ]; then
    python3 -m venv "$environment"
fi
python=$environment/bin/python
if ! "$python" -c 'import h5py; assert h5py.get_config().mpi' 2>/dev/null; then
    "$python" -m pip install -q numpy lark tabulate pytest hypothesis Cython pkgconfig 'setuptools>=77'
    # Both from source: one that carries an MPI of its own would be a second one in the process.
    "$python" -m pip install -q --no-binary=mpi4py mpi4py
    "$python" -m pip install -q --no-build-isolation --no-binary=h5py h5py
fi
# The tests' launcher is the one next to their Python; through a link it would look for its own helpers there.
printf '#!/bin/sh\nexec "%s" "$@"\n' "$launcher" > "$environment/bin/mpiexec"
chmod +x "$environment/bin/mpiexec"

"$python" -c 'import h5py; assert h5py.get_config().mpi, "h5py came out serial"; print(h5py.version.info)'
"$python" -m pytest -rs tests/mpi/test_parallel_hdf5.py tests/formats/hdf5 tests/formats/test_hdf5*.py
