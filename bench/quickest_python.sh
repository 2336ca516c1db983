#!/bin/sh
# Prints the quickest Python >= 3.11 on the PATH that can make a virtual environment; nothing when there is none.
# The timed code resembles PocketMQ's hot path: calls, dict look-ups, small integers, bytes. The best of seven runs counts.
probe='
import sys
if sys.version_info < (3, 11): sys.exit(1)
import ensurepip, time, venv
def call(a, b): return a.get("x", 0) + b
def work(d={"x": 1}):
    for i in range(20000): b"%d" % call(d, i)
best = 1.0
for _ in range(7):
    start = time.process_time(); work(); best = min(best, time.process_time() - start)
print(f"{best * 1e6:08.0f}", sys.executable)
'
IFS=:
for folder in $PATH; do
  for path in "$folder"/python3.1[1-9] "$folder"/python3; do
    [ -x "$path" ] && "$path" -c "$probe" 2>/dev/null
  done
done | sort | awk 'NR == 1 { print $2 }'
