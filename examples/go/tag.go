package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// tourTag: a message has one tag, a subscription several. The broker sends the group only messages of these tags.
func tourTag(nameServer string) (string, error) {
	const topic, group = "TourTag", "TourTagGroup"
	p, err := startProducer(nameServer, "TourTagProducer")
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	for _, tag := range []string{"red", "green", "blue"} {
		if err := sendOne(p, primitive.NewMessage(topic, []byte("a "+tag+" one")).WithTag(tag)); err != nil {
			return "", err
		}
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "red || blue"}
	bodies, err := consume(nameServer, group, topic, selector, 2)
	return "3 sent, consumed by red || blue: " + list(bodies), err
}
