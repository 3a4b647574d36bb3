%% The speed table's workloads for Erlang on one scheduler (+S 1:1).
%% usage: erl +S 1:1 -noshell -pa DIRECTORY -run peers main WORKLOAD NUMBER...   prints nanoseconds of CPU time per operation
-module(peers).
-export([main/1, yielder/2, ping/3, pong/1, producer/3, consumer/3, counted/1, sleeper/3]).

main([Workload | Numbers]) ->
    io:format("~.3f~n", [float(work(Workload, [list_to_integer(Number) || Number <- Numbers]))]),
    halt().

cpu() -> element(1, erlang:statistics(runtime)) * 1000000.

await(0) -> ok;
await(N) -> receive done -> await(N - 1) end.

work("yield", [N, M]) ->
    Self = self(),
    All = [spawn(?MODULE, yielder, [Self, M]) || _ <- lists:seq(1, N)],
    Start = cpu(),
    [One ! go || One <- All],
    await(N),
    (cpu() - Start) / (N * M);
work("pairs", [Count, Rounds]) ->
    Self = self(),
    Start = cpu(),
    [spawn(?MODULE, ping, [Self, spawn(?MODULE, pong, [Rounds]), Rounds]) || _ <- lists:seq(1, Count)],
    await(Count),
    (cpu() - Start) / (2 * Count * Rounds);
%% Mailboxes are unbounded: a credit window replaces the channel's capacity.
work("stream", [Messages, Capacity]) ->
    Start = cpu(),
    Consumer = spawn(?MODULE, consumer, [self(), Messages, {0, Capacity}]),
    spawn(?MODULE, producer, [Consumer, Messages, Capacity]),
    await(1),
    (cpu() - Start) / Messages;
work("spawn", [N]) ->
    Start = cpu(),
    spawn_all(N, self()),
    await(N),
    (cpu() - Start) / N;
%% Real milliseconds; only CPU time is counted.
work("sleepers", [N, M]) ->
    Self = self(),
    All = [spawn(?MODULE, sleeper, [Self, I * 2654435761, M]) || I <- lists:seq(1, N)],
    Start = cpu(),
    [One ! go || One <- All],
    await(N),
    (cpu() - Start) / (N * M).

yielder(Parent, M) ->
    receive go -> ok end,
    yields(M),
    Parent ! done.
yields(0) -> ok;
yields(M) -> erlang:yield(), yields(M - 1).

ping(Parent, _, 0) -> Parent ! done;
ping(Parent, Pong, Rounds) ->
    Pong ! {self(), Rounds},
    receive Rounds -> ok end,
    ping(Parent, Pong, Rounds - 1).
pong(0) -> ok;
pong(Rounds) ->
    receive {Ping, Number} -> Ping ! Number end,
    pong(Rounds - 1).

producer(_, 0, _) -> ok;
producer(Consumer, N, 0) -> receive {credit, Credit} -> producer(Consumer, N, Credit) end;
producer(Consumer, N, Credit) ->
    Consumer ! {self(), N},
    producer(Consumer, N - 1, Credit - 1).
consumer(Parent, 0, _) -> Parent ! done;
consumer(Parent, N, {Got, Window}) ->
    receive
        {Producer, _} when Got + 1 =:= Window ->
            Producer ! {credit, Window},
            consumer(Parent, N - 1, {0, Window});
        {_, _} -> consumer(Parent, N - 1, {Got + 1, Window})
    end.

spawn_all(0, _) -> ok;
spawn_all(N, Parent) ->
    spawn(?MODULE, counted, [Parent]),
    spawn_all(N - 1, Parent).
counted(Parent) -> Parent ! done.

sleeper(Parent, State, M) ->
    receive go -> ok end,
    sleeps(Parent, State, M).
sleeps(Parent, _, 0) -> Parent ! done;
sleeps(Parent, State, M) ->
    Next = (State * 1664525 + 1013904223) band 16#ffffffff,
    receive after ((Next bsr 16) rem 1000) + 1 -> ok end,
    sleeps(Parent, Next, M - 1).
