let () =
  let n = int_of_string Sys.argv.(1) in
  let table = Hashtbl.create 1000 in
  for i = 0 to n do
    Hashtbl.replace table (i * 7919 mod 1000003) (string_of_int i)
  done;
  let all = List.sort compare (Hashtbl.fold (fun k v rest -> (k, v) :: rest) table []) in
  let digest = List.fold_left (fun a (k, v) -> (a * 31 + k + int_of_string v) land 0xffffffff) 7 all in
  Printf.printf "%d %d\n" (List.length all) digest
