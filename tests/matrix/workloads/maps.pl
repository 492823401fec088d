:- initialization(main, main).

main([Word]) :-
    atom_number(Word, N),
    numlist(1, N, List),
    maplist([X, Y]>>(Y is (X * 7919) mod 100003), List, Values),
    msort(Values, Sorted),
    sumlist(Sorted, Sum),
    length(Sorted, Length),
    foldl([X, A, B]>>put_assoc(X, A, X, B), Values, t, Tree),
    assoc_to_keys(Tree, Keys),
    length(Keys, Different),
    foldl([X, A, B]>>(B is (A * 31 + X) mod 1000000007), Sorted, 7, Digest),
    format("~w ~w ~w ~w~n", [Sum, Length, Different, Digest]).
