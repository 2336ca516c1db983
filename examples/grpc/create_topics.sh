#!/bin/sh
# Creates the topics of the tours: create_topics.sh [NAME_SERVER] [CLUSTER]. gRPC clients cannot create topics, and a topic
# takes messages of its type only. Of the consumer groups only the one that receives in order has to be created.
set -e
export NAMESRV_ADDR="${1:-127.0.0.1:9876}"
cluster="${2:-DefaultCluster}"
for topic in TourNormal:NORMAL TourFifo:FIFO TourDelayed:DELAY TourTransaction:TRANSACTION; do
    mqadmin updateTopic -c "$cluster" -t "${topic%:*}" -a "+message.type=${topic#*:}"
done
mqadmin updateSubGroup -c "$cluster" -g TourFifoGroup -o true
