"""Run `mqadmin` as a module: `python -m pocketmq.admin topicList -n localhost:9876`."""

from pocketmq.admin.tool import main

main()
