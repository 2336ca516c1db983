package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// tourDelayTime: a delay to any millisecond. The client has no method for it; the broker reads the property. Another one,
// TIMER_DELAY_MS, has the broker add a delay to the time at which it stores the message.
func tourDelayTime(nameServer string) (string, error) {
	const topic, group = "TourDelayTime", "TourDelayTimeGroup"
	p, err := startProducer(nameServer, "TourDelayTimeProducer")
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	due := time.Now().Add(700 * time.Millisecond).UnixMilli()
	message := primitive.NewMessage(topic, []byte("later"))
	message.WithProperty("TIMER_DELIVER_MS", strconv.FormatInt(due, 10))
	if err := sendOne(p, message); err != nil {
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
	due, err = strconv.ParseInt(r.messages["later"].GetProperty("TIMER_DELIVER_MS"), 10, 64)
	if err != nil {
		return "", err
	}
	if after := r.times["later"].UnixMilli() - due; after < 0 {
		return "", fmt.Errorf("consumed %d ms too early", -after)
	}
	return "due in 700 ms, consumed then", nil
}
