#!/usr/bin/env bash
# Prints the folder with the sources of XGrammar, which src/grammar/ stands on.
set -euo pipefail
version=0.2.8
exec "$(dirname "$0")/fetch_source.sh" xgrammar-$version \
  8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80 \
  https://files.pythonhosted.org/packages/03/0f/29f521535729be740779c2c98b630ef6607cf28be9b669895dd2b821ff63/xgrammar-$version.tar.gz \
  xgrammar-$version cpp include 3rdparty/picojson 3rdparty/dlpack/include LICENSE NOTICE
