package main

// tourSync: synchronous sends. Each returns when the broker has answered, and says where the message is stored.
func tourSync(nameServer string) (string, error) {
	const topic, group = "TourSync", "TourSyncGroup"
	if err := send(nameServer, topic, "message 0", "message 1", "message 2"); err != nil {
		return "", err
	}
	bodies, err := consume(nameServer, group, topic, everything, 3)
	return "3 sent, consumed " + list(bodies), err
}
