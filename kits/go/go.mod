module pocketmq.org/kit

go 1.21
