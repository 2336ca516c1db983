package main

import (
	"fmt"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// tourDelayLevel: a delay by level. The 18 levels are 1s 5s 10s 30s 1m 2m ... 10m 20m 30m 1h 2h.
func tourDelayLevel(nameServer string) (string, error) {
	const topic, group = "TourDelayLevel", "TourDelayLevelGroup"
	p, err := startProducer(nameServer, "TourDelayLevelProducer")
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	if err := sendOne(p, primitive.NewMessage(topic, []byte("later")).WithDelayTimeLevel(1)); err != nil {
		return "", err
	}
	r := newReceived()
	c, err := startConsumer(nameServer, group, topic, everything, r.handle)
	if err != nil {
		return "", err
	}
	defer c.Shutdown()
	if _, err := r.wait(1); err != nil {
		return "", err
	}
	after := r.times["later"].UnixMilli() - r.messages["later"].BornTimestamp
	if after < 1000 {
		return "", fmt.Errorf("consumed %d ms after the send: too early", after)
	}
	return "level 1, consumed after a second", nil
}
