module wavelock/benches/peers

go 1.19
