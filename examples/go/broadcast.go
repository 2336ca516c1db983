package main

import (
	"fmt"

	"github.com/apache/rocketmq-client-go/v2/consumer"
)

// tourBroadcast: each consumer of the group gets all messages, and keeps its offsets in ~/.rocketmq_client_go.
func tourBroadcast(nameServer string) (string, error) {
	const topic, group = "TourBroadcast", "TourBroadcastGroup"
	if err := send(nameServer, topic, "message 0", "message 1", "message 2"); err != nil {
		return "", err
	}
	members := []*received{newReceived(), newReceived()}
	for i, member := range members {
		c, err := startConsumer(nameServer, group, topic, everything, member.handle,
			consumer.WithConsumerModel(consumer.BroadCasting), consumer.WithInstance(fmt.Sprint(group, i)))
		if err != nil {
			return "", err
		}
		defer c.Shutdown()
	}
	var consumed [2]string
	for i, member := range members {
		bodies, err := member.wait(3)
		if err != nil {
			return "", err
		}
		consumed[i] = list(bodies)
	}
	return "3 sent, consumed by one " + consumed[0] + ", by the other " + consumed[1], nil
}
