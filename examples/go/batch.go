package main

import (
	"fmt"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const limitBytes, ofEachRecord = 1_000_000, 20

// tourBatch: many messages of one topic in one request. A request may have 4 MiB, so a long list is split.
func tourBatch(nameServer string) (string, error) {
	const topic, group = "TourBatch", "TourBatchGroup"
	var messages []*primitive.Message
	for i := 0; i < 30; i++ {
		messages = append(messages, primitive.NewMessage(topic, []byte(fmt.Sprint(i, " ", strings.Repeat("x", 100_000)))))
	}
	p, err := startProducer(nameServer, "TourBatchProducer")
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	lists := split(messages)
	for _, list := range lists {
		if err := sendOne(p, list...); err != nil {
			return "", err
		}
	}
	bodies, err := consume(nameServer, group, topic, everything, len(messages))
	return fmt.Sprintf("%d sent in %d requests, %d consumed", len(messages), len(lists), len(bodies)), err
}

// split splits a list so that each part is below the limit, or is one message.
func split(messages []*primitive.Message) (lists [][]*primitive.Message) {
	size := limitBytes
	for _, message := range messages {
		more := sizeOf(message)
		if size+more > limitBytes {
			lists = append(lists, nil)
			size = 0
		}
		last := len(lists) - 1
		lists[last] = append(lists[last], message)
		size += more
	}
	return
}

func sizeOf(message *primitive.Message) int {
	size := len(message.Topic) + len(message.Body) + ofEachRecord
	for key, value := range message.GetProperties() {
		size += len(key) + len(value)
	}
	return size
}
