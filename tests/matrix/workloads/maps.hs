import Data.List (foldl')
import qualified Data.Map.Strict as M
import System.Environment (getArgs)

main :: IO ()
main = do
  [word] <- getArgs
  let n = read word :: Int
      add m i = M.insertWith (++) (i * 7919 `mod` 100003) [i] m
      m = foldl' add M.empty [1 .. n]
  print (M.size m, sum (map length (M.elems m)))
  print (M.foldl' (\a l -> (a * 31 + sum l) `mod` 1000000007) 7 m)
  let xs = map (\x -> x * x `mod` 99991) [1 .. n]
  print (foldl' (\a x -> (a * 33 + x) `mod` 1000000007) 5 (reverse xs))
