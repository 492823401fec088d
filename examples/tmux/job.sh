#!/bin/bash
# A job on a machine that one has by ssh, in a session that outlives the connection, with zfolio top
# below it: ssh -t HOST ./job.sh; later the same line again, to look.
set -euo pipefail

session=${1:-job}
if ! tmux has-session -t "=$session" 2>/dev/null; then
	tmux new-session -d -s "$session" -x 160 -y 50
	tmux send-keys -t "$session" 'zfolio run --high 75% --record job.record -- python3 job.py' Enter
	tmux split-window -d -t "$session" 'zfolio top'
fi
# (Where there is no terminal it has been started, and that is all.)
[ ! -t 0 ] || exec tmux attach-session -t "=$session"
