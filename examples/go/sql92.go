package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// tourSql92: a condition over the messages' properties, in SQL92. The broker needs enablePropertyFilter=true.
func tourSql92(nameServer string) (string, error) {
	const topic, group = "TourSql92", "TourSql92Group"
	p, err := startProducer(nameServer, "TourSql92Producer")
	if err != nil {
		return "", err
	}
	defer p.Shutdown()
	for _, region := range []string{"EU", "US"} {
		for _, price := range []string{"80", "120"} {
			message := primitive.NewMessage(topic, []byte(region+" "+price))
			message.WithProperty("region", region)
			message.WithProperty("price", price)
			if err := sendOne(p, message); err != nil {
				return "", err
			}
		}
	}
	selector := consumer.MessageSelector{Type: consumer.SQL92, Expression: "region = 'EU' AND price > 100"}
	bodies, err := consume(nameServer, group, topic, selector, 1)
	return "4 sent, consumed by region = 'EU' AND price > 100: " + list(bodies), err
}
